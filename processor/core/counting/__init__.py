"""What a learner remembers: integers.

axes       the names behind the indices
counters   the counts, and adding to them
state      the lifetime's counters, and a ring of time buckets
codec      the bytes of a state
"""
