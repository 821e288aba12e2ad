"""Importing the estimators takes no longer than scikit-learn, and their help names every parameter."""

import inspect
import subprocess
import sys

import pytest

import tsadapt
from tsadapt import ConsensusSearchCV, DomainAdaptationClassifier, TSAClassifier

HEAVY = ("torch", "torchvision", "timm", "matplotlib", "tyro", "rich", "PIL", "safetensors", "tsadapt.models")


def imported(code):
    """The modules that are there after some code."""
    code = f"import sys\n{code}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {*done.stdout.split()}


def test_importing_the_classifier_imports_nothing_heavy():
    """It needs scikit-learn's base classes, and brings nothing beside them."""
    ours = imported("from tsadapt import TSAClassifier, DomainAdaptationClassifier; TSAClassifier().get_params()")
    assert not {*HEAVY} & ours
    theirs = imported(
        "import sklearn.base, sklearn.utils.validation, sklearn.utils.multiclass, sklearn.utils._param_validation"
    )
    assert {name.partition(".")[0] for name in ours - theirs} <= {"tsadapt", "pathlib", "warnings", "copy", "numbers"}


@pytest.mark.parametrize("heavy", ["torchvision", "timm", "matplotlib"])
def test_fitting_vectors_needs_no_image_library(heavy):
    code = (
        "import numpy as np\nfrom tsadapt import TSAClassifier\n"
        "X, y = np.repeat(np.eye(2), 9, 0), np.repeat([0, 1], 9)\n"
        "TSAClassifier(steps=2, bottleneck=4).fit(X, y, X_target=X + np.arange(18)[:, None])"
    )
    assert heavy not in imported(code)


@pytest.mark.parametrize("cls", [TSAClassifier, ConsensusSearchCV])
def test_help_names_every_parameter(cls):
    described = cls.__doc__.partition("Parameters\n")[2].partition("Attributes\n")[0]
    for name in inspect.signature(cls).parameters:
        assert f"\n    {name} : " in described, name


def test_public_names_are_there():
    assert {*tsadapt.__all__} <= {*dir(tsadapt)}
    for name in tsadapt.__all__:
        assert getattr(tsadapt, name) is not None
    assert {*inspect.signature(TSAClassifier).parameters} <= {*inspect.signature(DomainAdaptationClassifier).parameters}
