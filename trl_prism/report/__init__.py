"""The page that shows what a run did: read from its folder alone, also while it goes on."""
