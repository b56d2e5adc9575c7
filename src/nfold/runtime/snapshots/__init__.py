"""What a rank holds of the model's state in memory when generations change, and what it gives of it to others.

state_memory    the states that a process holds, whatever generations come and go
state_giving    gives others what they ask for
state_reading   reads the file of a whole state out of what this process and others hold
handing         hands pieces to others before their holder leaves
lending         gives a newcomer a part of the state, and of the sums of each step from there on
shadow          makes of that what the others have, beside their steps

Who has which elements, and who reads what from whom, is decided in `runtime/coordinator/states`.
"""
