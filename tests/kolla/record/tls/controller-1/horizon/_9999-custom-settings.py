SYSTEM_SCOPE_SERVICES = ['baremetal']
