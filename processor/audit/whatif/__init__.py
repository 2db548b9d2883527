"""The same stream under other settings.

settings                  what may be changed, and how people write it
asking, whatif            from a question to an answer
variation, label_times    one partition under one other setting
ledger, outcomes, pairing which decision got which label, under two settings
figures, tables, pareto   what to say about it
output                    how it is said
"""
