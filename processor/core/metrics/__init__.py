"""What a person wants to know about a learner.

rates        rates and gaps, under fairlearn's names
confidence   intervals that hold however often one looks
attainable   what the experts themselves allow
bounds       the paper's guarantees
diagnosis    what to know before believing any of it
"""
