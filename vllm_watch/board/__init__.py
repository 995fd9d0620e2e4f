"""The last results of everything that is watched: written once per look, read by what shows, acts and tells."""
