"""The command line: verbs first. Nothing heavy is imported before a verb needs it, so that --help answers at once."""

import contextlib
import sys
import warnings
from collections.abc import Iterator

from tsadapt.errors import UserError, printable, system_error, unknown

__all__ = ["main"]

VERBS = {
    "adapt": "the whole job: check, train, choose without labels, estimate; predictions, a page, a model",
    "demo": "the whole job on real digits included in the packages",
    "doctor": "check data for problems, before hours are spent on it",
    "fit": "train on a labelled SOURCE and an unlabelled TARGET; resumes by itself",
    "evaluate": "accuracy of a trained RUN on labelled DATA",
    "predict": "predictions of a trained RUN or model.onnx for DATA, as CSV",
    "export": "the model of a RUN as one file that runs elsewhere: ONNX, or torch.export",
    "sweep": "train with several settings, and choose among them without target labels",
    "benchmark": "compare methods on tasks of your own: mean ± deviation, ranks, intervals",
    "select": "choose among trained RUNs without target labels",
    "report": "one HTML page of RUNs: predictions to check, class shares, maps, curves",
    "rank": "which backbone? from its features of both domains, before anything is trained",
    "features": "embeddings of images by a backbone, for any other use",
    "augmented": "what the augmented features of a RUN look like: the nearest real images",
    "list": "available methods, source and target terms, networks, presets, datasets, backbones, validators",
    "cache": "what is kept between runs: its size, and how to clear it",
    "completion": "a script that completes verbs and options in bash, zsh or fish",
    "reproduce": "moved to the repository: python -m paper NAME",
}

LEFT_OUT = ("torch", "torchvision", "timm", "sklearn", "scipy", "safetensors", "filelock")
"""What an environment for exported models lacks (docs/export.md)."""

USAGE = """\
tsadapt adapts a classifier from a labelled source domain to an unlabelled target domain.

usage: tsadapt VERB ...

{verbs}

examples:
  tsadapt demo
  tsadapt adapt photos/labelled photos/new --out result
  tsadapt doctor photos/labelled photos/new
  tsadapt fit photos/labelled photos/new --tsa --out runs/photos
  tsadapt predict runs/photos photos/new --out predictions.csv

More: tsadapt VERB --help
"""


def main(arguments: list[str] | None = None) -> int:
    """Run a verb; the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE.format(verbs="\n".join(f"  {verb:<10} {what}" for verb, what in VERBS.items())), end="")
        return 0 if arguments else 2
    verb, *rest = arguments
    if verb == "--version":
        from importlib.metadata import version

        print(f"tsadapt {version('tsadapt')}")
        return 0
    try:
        if verb == "reproduce":
            command = " ".join(["python -m paper", *rest])
            raise UserError(f"The paper's tables moved out of the package. In a checkout of the repository: {command}")
        if verb not in VERBS:
            raise UserError(unknown("verb", verb, VERBS))
        from tsadapt.cli.verbs import run_verb

        with _warnings_as_notes():
            return run_verb(verb, rest)
    except UserError as error:
        print(f"tsadapt: {printable(error)}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of a pipe has had enough
        sys.stderr.close()
        return 1
    except OSError as error:  # a disk that is full, a place that cannot be written
        print(printable(f"tsadapt: {system_error(error)}"), file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if error.name not in LEFT_OUT:
            raise
        print(
            f"tsadapt: {verb} needs {error.name}, which is not installed here: pip install tsadapt, with all that it"
            " depends on. Without it: tsadapt predict model.onnx DATA, with a model that tsadapt export wrote.",
            file=sys.stderr,
        )
        return 2
    except (MemoryError, RuntimeError) as error:
        if not (said := out_of_memory(error)):
            raise
        print(f"tsadapt: {said}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        print(printable(f"tsadapt: interrupted{f'; {stop}' if str(stop) else ''}"), file=sys.stderr)
        return 130


@contextlib.contextmanager
def _warnings_as_notes() -> Iterator[None]:
    """Show warnings as the command line shows notes: what they say, and not which line of the code says so."""

    def note(message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = "") -> str:
        return printable(f"note: {message}") + "\n"

    before, warnings.formatwarning = warnings.formatwarning, note
    try:
        yield
    finally:
        warnings.formatwarning = before


def out_of_memory(error: Exception) -> str:
    """What to say of an error of NumPy's, torch's or Python's that means a lack of memory; empty for any other.

    >>> out_of_memory(MemoryError("Unable to allocate 4 GiB"))
    'Out of memory: Unable to allocate 4 GiB. Smaller data, --batch-size or --bottleneck need less.'
    """
    what = next(iter(str(error).splitlines()), "")
    if not isinstance(error, MemoryError) and not any(word in what for word in ("allocate memory", "out of memory")):
        return ""
    reason = what.partition("DefaultCPUAllocator: ")[2] or what
    reason = reason.partition(" Error code")[0].rstrip(".")
    return f"Out of memory{f': {reason}' if reason else ''}. Smaller data, --batch-size or --bottleneck need less."
