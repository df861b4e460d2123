#!/usr/bin/python3
# Goal:    open an AF_VSOCK socket (the channel to a hypervisor; nothing is connected)
# Models:  VM escape channel of micro-VMs, host services on vsock
# Oracle:  self-report
# Tier:    hardening
# Needs:   vsock
from ctk import *

s = socket.socket(40, socket.SOCK_STREAM)
escaped("AF_VSOCK socket created")
