"""A picture of a running dashboard: ``python -m tests.browser.screenshot URL TOKEN [--path PATH] [--out FILE]``."""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.browser.chromium import browser


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="the dashboard's address, for example http://127.0.0.1:8000")
    parser.add_argument("token", help="the token itself, or the path of the file that holds it")
    parser.add_argument("--path", default="/", help="the page, for example /runs/NAME")
    parser.add_argument("--out", type=Path, default=Path("docs/dashboard.png"))
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=800)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--whole", action="store_true", help="the whole page instead of its first screen")
    args = parser.parse_args()
    file = Path(args.token)
    token = file.read_text().strip() if file.is_file() else args.token
    with browser() as instance:
        context = instance.new_context(
            viewport={"width": args.width, "height": args.height},
            color_scheme="dark" if args.dark else "light",
            extra_http_headers={"Authorization": f"Bearer {token}"},
        )
        page = context.new_page()
        answer = page.goto(args.url.rstrip("/") + args.path)
        if answer is None or not answer.ok:
            raise SystemExit(f"the dashboard answered {answer.status if answer else 'nothing'} for {args.path}")
        # The first stream event has arrived and the parts were drawn anew: what a person sees after a moment.
        page.wait_for_selector("html[data-live=on]", timeout=15000)
        page.wait_for_load_state("load")
        page.evaluate("() => new Promise((done) => setTimeout(done, 1200))")
        args.out.parent.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=args.out, full_page=args.whole)
    print(args.out)


if __name__ == "__main__":
    main()
