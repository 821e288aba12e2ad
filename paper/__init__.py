"""The paper's tables and figures: recipes that give whole configs, its published numbers, and ours beside them."""

from paper.catalogue import RECIPES, Recipe
from paper.published import published
from paper.reproduce import reproduce
from paper.request import Asked
from paper.status import status_lines

__all__ = ["RECIPES", "Asked", "Recipe", "published", "reproduce", "status_lines"]
