"""Where an audit reads from: a recording, plain ``kcat -J`` files, or a running cluster, all behind one interface.

source         the interface, the roles of topics, and how a source is opened
manifest       ``manifest.json`` of a recording, and the check of its files
line_files     files of JSON lines, compressed or not
file_sources   the sources that read files: a recording, and plain files
cluster        the source that reads a running cluster, and the offsets of its topics
"""
