#!/bin/sh
# Chromium for the tests of the report, by apt where there is none. It never fails: without it, those tests are skipped.
for name in chromium chromium-browser google-chrome; do
  if command -v "$name" >/dev/null; then exit 0; fi
done
export DEBIAN_FRONTEND=noninteractive
quick="-q -o Acquire::Retries=1 -o Acquire::http::Timeout=20"
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing Chromium for the tests of the report …"
  log=$(mktemp)
  # shellcheck disable=SC2086
  { apt-get install -y $quick chromium || { apt-get update $quick && apt-get install -y $quick chromium; }; } >"$log" 2>&1
  if command -v chromium >/dev/null; then rm -f "$log"; exit 0; fi
  echo "apt-get could not install it: $(tail -n 1 "$log")"
fi
echo "no Chromium here: the tests that open the report in a browser will be skipped"
exit 0
