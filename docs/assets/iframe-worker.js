// Opened from a disk, a page may start no worker, and the search is one. Then a hidden frame of the same page
// does a worker's work. A server's pages keep the browser's own. (Material's offline plugin would fetch such a
// script from a server at build time; it looks for this file's name, and leaves it alone.)
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      // In a worker, postMessage has one argument, and what it is given goes to whoever made the worker.
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inside.document.createElement("script");
      script.src = url;
      this.ready = new Promise((loaded, failed) => {
        script.onload = loaded;
        script.onerror = () => failed(new Error(`${url} cannot be read`));
      });
      inside.document.body.append(script);
    }

    async postMessage(data) {
      await this.ready;
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
