"""Start, watch, replace and end the processes of zkplan.

`zkplan worker --processes`, `zkplan.local`, the demo, the stress run and the testing tools all
start their processes with this package.
"""
