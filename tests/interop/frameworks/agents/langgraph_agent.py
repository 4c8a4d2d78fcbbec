"""LangGraph Server (langgraph-api, in memory), whose graph asks by `interrupt()`."""

import os
import pathlib
import sys
import threading
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))


def tell(url):
    """Says ready once the server knows its assistant, whose id is in the card's address."""
    import json

    while True:
        try:
            body = urllib.request.Request(f"{url}assistants/search", b"{}", {"Content-Type": "application/json"})
            found = json.load(urllib.request.urlopen(body))[0]["assistant_id"]
            return print(f"ready {url}.well-known/agent-card.json?assistant_id={found}", flush=True)
        except (OSError, IndexError):
            time.sleep(0.2)


def main():
    from telling import NAME, listen

    listener, url = listen(0)
    listener.close()  # its server opens a socket of its own
    os.environ["TIDE_MODEL"] = sys.argv[1]
    from langgraph_api.cli import run_server

    threading.Thread(target=tell, args=(url,), daemon=True).start()
    graph = f"{pathlib.Path(__file__).resolve().parent / 'langgraph_graph.py'}:graph"
    run_server(host="127.0.0.1", port=int(url.rstrip("/").rpartition(":")[2]), reload=False, graphs={NAME: graph})


if __name__ == "__main__":
    main()
