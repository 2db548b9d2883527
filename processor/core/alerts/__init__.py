"""Drift of the error rates, noticed with a stated rate of false alarms.

sequential_tests   two groups on one true label, tested as the labels come
monitor            all tests of a tenant
alerts             settings, alerts and their evidence
alert_events       an alert as it is published
"""
