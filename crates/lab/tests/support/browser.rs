//! Chromium without a window, driven through its debugging pipe: messages are JSON, ended by a
//! zero byte (<https://chromedevtools.github.io/devtools-protocol/>).

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A page in a browser of its own.
pub struct Browser {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    session: String,
    last: u64,
    /// Errors on the console, and requests for anything but the page itself.
    pub complaints: Vec<String>,
    loaded: bool,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts chromium.
    pub fn start() -> Self {
        let profile = tempfile::tempdir().expect("a directory");
        // The pipe is file descriptors 3 and 4.
        let script = "exec chromium --headless --no-sandbox --disable-gpu --disable-quic \
                      --no-first-run --disable-background-networking --disable-component-update \
                      --disable-sync --hide-scrollbars --force-color-profile=srgb \
                      --remote-debugging-pipe --user-data-dir=\"$0\" about:blank \
                      3<&0 4>&1 >/dev/null 2>&1 </dev/null";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .arg(profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh starts");
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut browser = Self {
            child,
            input,
            output: BufReader::new(output),
            session: String::new(),
            last: 0,
            complaints: Vec::new(),
            loaded: false,
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let id = target["targetId"].clone();
        let attached =
            browser.call("Target.attachToTarget", json!({ "targetId": id, "flatten": true }));
        browser.session = attached["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page", "Runtime", "Network", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        let still = json!([{ "name": "prefers-reduced-motion", "value": "reduce" }]);
        browser.call("Emulation.setEmulatedMedia", json!({ "features": still }));
        browser
    }

    /// Calls a method and returns its result.
    #[track_caller]
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": params });
        if !self.session.is_empty() {
            message["sessionId"] = self.session.as_str().into();
        }
        self.input.write_all(message.to_string().as_bytes()).expect("chromium listens");
        self.input.write_all(&[0]).expect("chromium listens");
        loop {
            let message = self.read();
            if message["id"] == self.last {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
        }
    }

    /// The next message; events are noted.
    fn read(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.output.read_until(0, &mut bytes).expect("chromium answers");
        assert_eq!(bytes.pop(), Some(0), "chromium has ended (is it installed?)");
        let message: Value = serde_json::from_slice(&bytes).expect("JSON");
        let params = &message["params"];
        match message["method"].as_str() {
            Some("Page.loadEventFired") => self.loaded = true,
            Some("Runtime.exceptionThrown") => self.complaints.push(params.to_string()),
            Some("Runtime.consoleAPICalled") if params["type"] == "error" => {
                self.complaints.push(params.to_string());
            }
            Some("Log.entryAdded") if params["entry"]["level"] == "error" => {
                self.complaints.push(params.to_string());
            }
            Some("Network.requestWillBeSent") => {
                let url = params["request"]["url"].as_str().unwrap_or_default();
                if !url.starts_with("data:") && params["type"] != "Document" {
                    self.complaints.push(format!("request for {url}"));
                }
            }
            _ => {}
        }
        message
    }

    /// Opens a file and waits until it is loaded; returns how long that took.
    pub fn open(&mut self, path: &Path) -> Duration {
        self.loaded = false;
        let started = Instant::now();
        let path = path.canonicalize().expect("a file");
        self.call("Page.navigate", json!({ "url": format!("file://{}", path.display()) }));
        while !self.loaded {
            self.read();
        }
        // Scripts have run by now; what they changed is drawn when this answers.
        self.evaluate("new Promise(requestAnimationFrame).then(() => 1)");
        started.elapsed()
    }

    /// The width and height of the page in CSS pixels.
    pub fn resize(&mut self, width: u32, height: u32) {
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
        });
        self.call("Emulation.setDeviceMetricsOverride", size);
        self.evaluate("new Promise((done) => setTimeout(() => done(1), 100))");
    }

    /// The value of an expression.
    #[track_caller]
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({
            "expression": expression, "returnByValue": true, "awaitPromise": true,
            "userGesture": true,
        });
        let answer = self.call("Runtime.evaluate", params);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// A text of the page.
    #[track_caller]
    pub fn text(&mut self, selector: &str) -> String {
        let text = self.evaluate(&format!("document.querySelector({selector:?}).textContent"));
        text.as_str().expect("a text").to_owned()
    }

    /// Moves the mouse to a place.
    pub fn point(&mut self, (x, y): (f64, f64)) {
        let event = json!({ "type": "mouseMoved", "x": x, "y": y });
        self.call("Input.dispatchMouseEvent", event);
    }

    /// Clicks at a place.
    pub fn click_at(&mut self, (x, y): (f64, f64)) {
        self.point((x, y));
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({ "type": kind, "x": x, "y": y, "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    /// Clicks in the middle of an element, which is scrolled to.
    #[track_caller]
    pub fn click(&mut self, selector: &str) {
        let at = self.place(selector, (0.5, 0.5));
        self.click_at(at);
    }

    /// A place within an element, which is scrolled to.
    #[track_caller]
    pub fn place(&mut self, selector: &str, (x, y): (f64, f64)) -> (f64, f64) {
        let script = format!(
            "(() => {{ const e = document.querySelector({selector:?}); \
             e.scrollIntoView({{ block: 'center', behavior: 'instant' }}); \
             const b = e.getBoundingClientRect(); \
             return [b.left + {x} * b.width, b.top + {y} * b.height]; }})()"
        );
        let place = self.evaluate(&script);
        (place[0].as_f64().expect("a place"), place[1].as_f64().expect("a place"))
    }

    /// Presses a key, such as `ArrowRight`.
    pub fn press(&mut self, key: &str) {
        let code = match key {
            "ArrowLeft" => 37,
            "ArrowUp" => 38,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            "Enter" => 13,
            other => panic!("unknown key {other}"),
        };
        for kind in ["rawKeyDown", "keyUp"] {
            let event =
                json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code });
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Stores a picture of the whole page.
    pub fn screenshot(&mut self, path: &Path) {
        self.evaluate("scrollTo(0, 0)");
        let shot = self.call("Page.captureScreenshot", json!({ "captureBeyondViewport": true }));
        use base64::Engine as _;
        let data = shot["data"].as_str().expect("a picture");
        let bytes = base64::engine::general_purpose::STANDARD.decode(data).expect("base64");
        std::fs::write(path, bytes).expect("a file");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
