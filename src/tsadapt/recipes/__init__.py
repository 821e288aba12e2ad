"""The paper's tables and figures: recipes that give whole configs, its published numbers, and ours beside them."""

from tsadapt.recipes.asked import Asked
from tsadapt.recipes.catalogue import RECIPES, Recipe
from tsadapt.recipes.published import published
from tsadapt.recipes.reproduce import reproduce
from tsadapt.recipes.status import status_lines

__all__ = ["RECIPES", "Asked", "Recipe", "published", "reproduce", "status_lines"]
