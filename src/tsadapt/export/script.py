"""A few lines of Python that use an exported model without tsadapt, made for its inputs: a file beside the model."""

from textwrap import indent

from tsadapt.export.exported import FILES, Recipe

__all__ = ["SCRIPTS", "script"]

SCRIPTS = {"onnx": "use_onnx.py", "torch": "use_torch.py"}
"""The file of each format."""

OPENED = {
    "onnx": """\
session = onnxruntime.InferenceSession(Path(__file__).with_name("{file}"))
classes = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
""",
    "torch": """\
files = {{"classes.json": ""}}
model = torch.export.load(Path(__file__).with_name("{file}"), extra_files=files).module()
classes = json.loads(files["classes.json"])
""",
}

PREDICTED = {
    "onnx": '{p} = session.run(["probabilities"], {{"{name}": {x}}})',
    "torch": "{p}, _ = model(torch.from_numpy({x}))",
}

PHOTOGRAPHS = """\
for file in sys.argv[1:] or sys.exit(__doc__):
    image = Image.open(file)
    image.draft("RGB", ({least}, {least}))  # a large JPEG is decoded at a part of its size
    image = ImageOps.exif_transpose(image).convert("RGB")
    image = image.resize({size}, Image.Resampling.{interpolation})
"""

CROPPED = """\
    left, top = (round((side - {size}) / 2) for side in image.size)
    image = image.crop((left, top, left + {size}, top + {size}))
"""

GREY = """\
for file in sys.argv[1:] or sys.exit(__doc__):
    image = ImageOps.exif_transpose(Image.open(file)).convert("RGB")
    image = Image.fromarray(np.asarray(image, np.float32).mean(-1))
"""

COLOURED = """\
for file in sys.argv[1:] or sys.exit(__doc__):
    image = ImageOps.exif_transpose(Image.open(file)).convert("RGB")
"""

TABLE = """\
[table] = sys.argv[1:] or sys.exit(__doc__)
with open(table, encoding="utf-8-sig") as file:
    rows = [[float(row[name]) for name in {columns}] for row in csv.DictReader(file)]
"""

ARRAY = """\
[file] = sys.argv[1:] or sys.exit(__doc__)
rows = np.load(file)
rows = rows["x"] if file.endswith(".npz") else rows
"""


def script(recipe: Recipe, kind: str) -> str:
    """The file's text: imports, and about ten lines."""
    vectors = recipe.takes == "vectors"
    packages = {"onnx": "onnxruntime", "torch": "torch"}[kind], "numpy", *([] if vectors else ["pillow"])
    what = ("TABLE.csv" if recipe.columns else "ROWS.npy") if vectors else "IMAGE…"
    tail = _of_rows(recipe, kind) if vectors else _of_images(recipe, kind)
    body = OPENED[kind].format(file=FILES[kind]) + tail
    return f'"""Predict with {FILES[kind]}: python {SCRIPTS[kind]} {what} (needs {", ".join(packages)})."""\n\n' + (
        f"{_imports(body)}\n\n{body}"
    )


def _imports(body: str) -> str:
    standard = [f"import {name}" for name in ("csv", "json", "sys") if f"{name}." in body] + [
        "from pathlib import Path"
    ]
    others = ["import numpy as np", *(f"import {name}" for name in ("onnxruntime", "torch") if f"{name}." in body)]
    pillow = [name for name in ("Image", "ImageOps") if f"{name}." in body]
    others += [f"from PIL import {', '.join(pillow)}"] if pillow else []
    return "\n".join([*standard, "", *others])


def _of_images(recipe: Recipe, kind: str) -> str:
    if recipe.framing is not None:
        framing = recipe.framing
        whole = f"({framing.resize}, {framing.resize})"
        size = f"[{framing.resize} * side // min(image.size) for side in image.size]" if framing.keep_aspect else whole
        text = PHOTOGRAPHS.format(
            least=2 * framing.resize, size=size, interpolation=framing.interpolation.upper()
        )  # fmt: skip
        text += "" if recipe.ten_crop else CROPPED.format(size=framing.size)
        x = "np.array(image)[None]"
    else:
        assert recipe.shape is not None
        shape, text = recipe.shape, GREY if recipe.shape.channels == 1 else COLOURED
        if shape.crop is not None:
            side, margin = shape.crop[0], (shape.crop[0] - shape.crop[1]) // 2
            box = (margin, margin, side - margin, side - margin)
            text += f"    image = image.crop({box}) if image.size == ({side}, {side}) else image\n"
        text += f"    image = image.resize(({shape.size}, {shape.size}), Image.Resampling.BILINEAR)\n"
        x = f"np.array(image).round().astype(np.uint8).reshape(1, {shape.size}, {shape.size}, {shape.channels})"
    run = PREDICTED[kind].format(p="[[p]]" if kind == "onnx" else "[p]", name=recipe.name, x=x)
    return text + indent(f"{run}\n{_shown('file', 'p')}\n", "    ")


def _of_rows(recipe: Recipe, kind: str) -> str:
    text = TABLE.format(columns=[*recipe.columns]) if recipe.columns else ARRAY
    x = f"np.array(rows, np.{'float64' if recipe.precise else 'float32'})"
    run = PREDICTED[kind].format(p="[p]" if kind == "onnx" else "p", name=recipe.name, x=x)
    loop = f"for row, one in enumerate(p):\n{indent(_shown('row', 'one'), '    ')}\n"
    return f"{text}{run}\n{loop}"


def _shown(name: str, p: str) -> str:
    return f'print({name}, classes[{p}.argmax()], f"{{{p}.max():.4f}}")'
