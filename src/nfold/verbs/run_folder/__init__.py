"""The folder that a run leaves behind: where it lies, what is in it, who may write to it, and going on from it.

folder                    the folder: made, opened, read and written
files                     what its files are called
run_place                 where it is to lie
whole_files               files that are never half there
whole_lines               lines that are never half there
history, history_writer   what happened when, line by line
ledger_file               hosts that came and went, line by line
held_hosts                how hosts are found again whose command is gone
lock                      who may write
disk                      whether there is room, before the first step
missed_best               the best model of a run that was killed
"""
