// The smallest stack with a Dormouse in it. The test deploys it to an emulator.

import { App, DefaultStackSynthesizer, Stack } from "aws-cdk-lib";

import { Dormouse } from "./dormouse";

const app = new App();
const stack = new Stack(app, "dormouse-cdk", { synthesizer: new DefaultStackSynthesizer({ generateBootstrapVersionRule: false }) });
new Dormouse(stack, "Dormouse", {
  zips: process.env.ZIPS ?? "build/arm64",
  stage: "cdk",
  architecture: (process.env.ARCHITECTURE as "arm64" | "x86_64" | undefined) ?? "arm64",
  turnSeconds: 120,
});
app.synth();
