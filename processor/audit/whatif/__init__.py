"""The same stream under other settings.

settings        what may be changed, and how people write it
whatif          from the settings asked for to the answer
variation       one partition under one other setting, and its cases paired with the recorded ones
outcomes        which decision got which label, and the counts
figures         rates, gaps and differences with their confidence
answer          the answer as rows, as sentences, and as a Pareto front
whatif_output   what ``gforce whatif`` prints and writes
"""
