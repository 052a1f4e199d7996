use std::fmt;

/// What happened, in order: always as a digest, as readable lines when somebody wants to read them.
#[derive(Debug)]
pub(crate) struct Trace {
    digest: u64,
    steps: u64,
    lines: Option<Vec<String>>,
}

impl Trace {
    pub(crate) fn new(readable: bool) -> Self {
        Self { digest: 0xcbf2_9ce4_8422_2325, steps: 0, lines: readable.then(Vec::new) }
    }

    /// Notes one step.
    pub(crate) fn note(&mut self, line: fmt::Arguments<'_>) {
        self.steps += 1;
        // A digest takes whatever it is given.
        let _ = fmt::write(self, line);
        self.absorb(b"\n");
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>5}  {line}", self.steps));
        }
    }

    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }

    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }

    /// FNV-1a.
    fn absorb(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.digest = (self.digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl fmt::Write for Trace {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.absorb(text.as_bytes());
        Ok(())
    }
}
