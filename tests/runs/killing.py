"""A run that dies at a given step, for tests of what is left."""

from pathlib import Path

from tsadapt.training.trainer import Trainer


def weights(run: Path) -> bytes:
    return (run / "model" / "model.safetensors").read_bytes()


class Killed(BaseException):
    pass


def kill_at(monkeypatch, step):
    """Die right after a step is made, before anything of it is written."""
    made = Trainer.step

    def dying(self, describe=False):
        said = made(self, describe)
        if self.at == step:
            raise Killed
        return said

    monkeypatch.setattr(Trainer, "step", dying)
