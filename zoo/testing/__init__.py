"""The conformance kit: what each kind of component owes the others, as checks that anybody can run on theirs."""
