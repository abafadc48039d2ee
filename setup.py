"""Which packages the distribution holds; everything else is in pyproject.toml.

They come from two folders, and ``recipes/`` travels inside ``zoo_builtin``, which the settings under
``[tool.setuptools]`` can't say without naming every folder.
"""

from setuptools import find_namespace_packages, find_packages, setup

recipes = ["zoo_builtin.recipes", *(f"zoo_builtin.recipes.{folder}" for folder in find_namespace_packages("recipes"))]

setup(
    packages=[
        *find_packages(".", include=["zoo", "zoo.*"]),
        *find_packages("plugins", include=["zoo_builtin", "zoo_builtin.*"]),
        *recipes,
    ],
    package_dir={"zoo_builtin": "plugins/zoo_builtin", "zoo_builtin.recipes": "recipes"},
    package_data={"": ["*.yaml", "py.typed"], "zoo.report": ["page.css", "page.js"], "zoo_builtin": ["matrix.json"]},
)
