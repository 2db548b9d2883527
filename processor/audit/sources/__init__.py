"""Where an audit reads from: a recording, plain ``kcat -J`` files, or a running cluster, all seen the same way."""
