"""The contracts: one file here is one kind of component; ``values`` holds what travels between them."""
