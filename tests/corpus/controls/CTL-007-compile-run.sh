#!/bin/bash
# Goal:    a C program can be compiled in the project and run
# Models:  -
# Oracle:  -
# Tier:    core
# Needs:   -
. "$2/probe/ctk.sh"
printf 'int main(){return 0;}' > t.c; e=$(gcc -o t.bin t.c 2>&1 && ./t.bin) && ok || broken "$e"
