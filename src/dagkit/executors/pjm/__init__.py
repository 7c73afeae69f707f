"""Jobs of PJM, the job manager of Fugaku and other Fujitsu machines (facts: pjm)."""
