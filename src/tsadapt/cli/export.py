"""tsadapt export: a trained model as a file that runs elsewhere."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from tsadapt.cli.options import File, Text

__all__ = ["Export"]


@dataclass(frozen=True)
class Export:
    """Write the model of a RUN as one file that runs without tsadapt: pixels or rows in, probabilities out.

    OUT gets model.onnx (or model.pt2), a few lines of Python that use it, and a model card. The file is compared with
    PyTorch on rows of the run's own data, and left behind only if both agree within 0.0001.

    Example: tsadapt export runs/photos --out shipped
    """

    run_folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Folder of a finished run, of a sweep or of a result of adapt: then the run that was chosen there."""
    format: Literal["onnx", "torch"] = "onnx"
    """onnx for ONNX Runtime, and for tsadapt predict; torch for torch.export.load."""
    out: File = None
    """Folder to write to. (default: export in RUN)"""
    use: Literal["last", "selected"] = "last"
    """Which model of the run: of its last step, or the one that validators selected (fit --candidates)."""
    data: Text = None
    """Data to compare with PyTorch on. (default: the run's target, or else its source)"""
    backbone: Text = None
    """Your own encoder again (FILE.py:FUNCTION), if RUN was trained with one: it never imports code by itself."""

    def __call__(self) -> int:
        """Export, and say what is where, and how well it agrees."""
        from tsadapt.errors import counted, printable
        from tsadapt.export.write import export

        made = export(
            self.run_folder, self.out, self.format, use=self.use, data=self.data, backbone=self.backbone
        )  # fmt: skip
        parity = made.parity
        print(printable(f"written: {made.file} ({made.file.stat().st_size / 1e6:.1f} MB), takes {made.recipe}"))
        print(
            printable(
                f"same as PyTorch on {counted(parity.rows, 'row')} of {parity.data}: differs by {parity.graph:.0e},"
                f" from the run's own probabilities by {parity.run:.0e}"
            )
        )
        others = sorted(
            path.name for path in made.folder.iterdir() if path != made.file and path.suffix in (".py", ".md")
        )
        print(printable(f"beside it: {', '.join(others)}"))
        return 0
