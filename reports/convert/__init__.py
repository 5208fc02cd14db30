"""Other tools' documents to servecast's and back: serve commands, benchmark results, metrics, traces."""
