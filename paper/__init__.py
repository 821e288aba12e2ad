"""The paper's tables and figures, and our studies: recipes, published numbers, and ours beside them.

`python -m paper` lists them. Where to find what:

- `catalogue.py` names every table, figure and study, with `rows.py`, `protocols.py` (data and settings) and
  `published.toml` (the paper's numbers);
- `reproduce.py` makes one of them: `request.py` (which runs), `jobs.py` (train them), `results_file.py` (store them),
  `page.py` and `pictures.py` (show them);
- `analyses/` measures more than accuracy, `studies/` holds work that is not a table of trainings;
- `results/NAME.json`, `.md` and `.png` are what was measured; `make_docs.py` and `overview.py` make pages of them.
"""
