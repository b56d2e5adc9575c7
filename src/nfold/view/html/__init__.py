"""What people look at in a browser: pages that are one file each and need no network, and one of a run that goes on.

document                      template, style, scripts and charts as one file
run_page, compare_page        report.html and compare.html
dashboard_page, loss_curve    a run that goes on, and its loss
meters                        how full each node's memory and links are
place_picture                 where samples should live
charts                        a chart as data
run_charts, timeline_chart, grid_chart    of a run: time and loss, tasks, placement
scaling_chart, cost_charts    of more workers, and of runs compared
"""

from nfold.view.html.compare_page import compare_page
from nfold.view.html.dashboard_page import LiveFacts, dashboard_page, dashboard_parts
from nfold.view.html.place_picture import place_page, place_svg
from nfold.view.html.run_page import RunFacts, run_page
from nfold.view.html.scaling_chart import Scaling, ScalingCurve

__all__ = [
    "LiveFacts",
    "RunFacts",
    "Scaling",
    "ScalingCurve",
    "compare_page",
    "dashboard_page",
    "dashboard_parts",
    "place_page",
    "place_svg",
    "run_page",
]
