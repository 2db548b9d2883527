"""Sources of cases and labels: synthetic populations, data sets, delays."""
