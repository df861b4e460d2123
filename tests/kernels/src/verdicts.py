"""Prints the verdict of each probe in a file of results."""

import json
import sys

for result in json.load(open(sys.argv[1]))["results"]:
    print(result["id"], result["verdict"])
