"""Operations in which threads exchange elements: layout conversions, reductions, scans, gathers, histograms."""
