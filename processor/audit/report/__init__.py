"""The report: one file a compliance officer can hand over, and the same figures for machines.

build        audit, collect, assemble, write
collection   one reading of each partition: figures over time, alerts, coverage
data         what a report says, and how decision ids are redacted
first_page   the answers on the first page
words        sentences, explanations, and configurations in words
charts       the charts as SVG
rendering    the report as HTML and as CSV
"""
