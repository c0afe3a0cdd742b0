"""What a stage service is made of, whichever engine is inside: engine protocols, supervision, HTTP shell, drain."""
