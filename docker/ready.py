"""A container's health: exits 0 if the service answers 200 on /ready. usage: ready.py PORT"""

import sys
from http.client import HTTPConnection, HTTPException

try:
    connection = HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=4)  # seconds: below the check's own 5
    connection.request("GET", "/ready")
    reply = connection.getresponse()
    print(reply.status, reply.read(500).decode(errors="replace"))
    sys.exit(reply.status != 200)
except (OSError, HTTPException) as error:
    print(f"no answer: {error}")
    sys.exit(1)
