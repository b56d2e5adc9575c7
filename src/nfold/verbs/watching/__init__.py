"""What shows a run while it goes on: a page for people, figures for Prometheus, curves for TensorBoard.

watchers                        who watches, as the options say
dashboard, web_server           the page, and what answers a browser; folder_reading reads the run's folder for it
prometheus, run_totals          figures, and what is added up for them
tensorboard                     curves; event_records and event_writer write them
"""
