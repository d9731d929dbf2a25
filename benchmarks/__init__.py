"""Speed next to a floor that is measured in the same run; ratios, never absolute promises."""
