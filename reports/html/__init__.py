"""The run as one HTML file that needs nothing else: no network, no library."""
