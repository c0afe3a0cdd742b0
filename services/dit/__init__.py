"""Stage 1: a ticket goes in, an encoded image comes out."""
