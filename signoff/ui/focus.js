// Keys go to the application as soon as it is there, without a click.
new MutationObserver((_, observer) => {
  const input = document.querySelector(".xterm-helper-textarea");
  if (input) {
    observer.disconnect();
    input.focus();
  }
}).observe(document, { childList: true, subtree: true });
