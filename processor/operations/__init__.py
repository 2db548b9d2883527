"""What an operator does, and the commands for it.

doctor                           can this configuration work here?
topic_plans                      how the topics must be
group                            foresee a start, reset, rebuild
tenant_state                     look at one tenant
dead_letters                     list, show, send back
acknowledgement, resumption      tell a running processor
commands, topic_commands, dead_letter_commands, options, output
"""
