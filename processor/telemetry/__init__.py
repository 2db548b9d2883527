"""What a running processor says about itself.

status                                the loop, as one immutable picture a turn
observer, measuring                   the tenants' figures, worked out when somebody asks
figures, window_figures, alert_figures, paper_bounds
                                      what they are made of
history                               how they have gone
catalogue, metrics                    every metric, and its value at a scrape
http                                  the port
hosts, guard, connections, sharing    what protects it, and the loop from those who ask
logs                                  the log
"""
