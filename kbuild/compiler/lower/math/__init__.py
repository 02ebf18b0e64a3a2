"""Mathematical functions as formulas, with errors stated against float64."""
