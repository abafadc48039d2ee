"""What a recipe's model costs, found on the meta device: shapes are computed, nothing is stored or trained."""

from zoo.info.summary import Information, information

__all__ = ["Information", "information"]
