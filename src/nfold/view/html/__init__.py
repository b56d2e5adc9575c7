"""What people look at in a browser: pages that are one file each and need no network, and one of a run that goes on."""

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
