"""Drift of the error rates, noticed with a stated rate of false alarms.

bets           one stream, two groups on one true label: the sequential tests
watch          all streams of a tenant
alerts         settings, alerts and their evidence
alert_events   an alert as it is published
"""
