// Made of template.yaml by publish.py; change that.

/** Parameters of the template; what is not given has its default. */
export interface DormouseParameters {
  /**
   * Which copy of Dormouse this is. Its secrets are parameters below /dormouse/STAGE; all else is named after the
   * stack. Default: "dev".
   */
  readonly stage?: string;

  /**
   * What the functions are built for. Default: "arm64".
   */
  readonly architecture?: "arm64" | "x86_64";

  /**
   * When the secrets were changed, as the deployment found them. Another text begins new processes, which read
   * them anew.
   */
  readonly secretsChanged?: string;

  /**
   * Where the secrets are; encrypted parameters below /dormouse/STAGE, or secrets of Secrets Manager below
   * dormouse/STAGE, which Parameter Store hands through. With stack it is the latter, and the stack makes them up.
   * Default: "parameter-store".
   */
  readonly secretStore?: "parameter-store" | "secrets-manager" | "stack";

  /**
   * Whether ends of tasks and approvals leave signed receipts. The keys are the secret receipt-keys beside the
   * others, which has to be there before. Default: "disabled".
   */
  readonly receipts?: "enabled" | "disabled";

  /**
   * The key of AWS KMS that signs the receipts, of the key spec ECC_NIST_EDWARDS25519. The secret receipt-keys
   * names it then, and has its public half. A key in that secret signs when empty.
   */
  readonly receiptsKmsKeyArn?: string;

  /**
   * Whether people hear that they are asked. The channels are the secret notifications beside the others, which
   * has to be there before. Default: "disabled".
   */
  readonly notifications?: "enabled" | "disabled";

  /**
   * The identity of Amazon SES that notifications by e-mail are sent from. Without it none is.
   */
  readonly emailIdentityArn?: string;

  /**
   * The key of your own that encrypts table, queues, logs, alarms, environments and secrets; keys that AWS manages
   * when empty. What it was before belongs into EarlierKmsKeyArns.
   */
  readonly kmsKeyArn?: string;

  /**
   * Keys that were KmsKeyArn before, separated by commas. Secrets, objects and queued events that were encrypted
   * with them stay readable for the functions.
   */
  readonly earlierKmsKeyArns?: string;

  /**
   * Who may begin turns and send messages. KEYS asks for an API key, AWS_IAM for a signed request; NONE lets
   * everybody in. Default: "KEYS".
   */
  readonly inboundAuthorization?: "KEYS" | "AWS_IAM" | "NONE";

  /**
   * Whose pages may ask /v1 from a browser, separated by commas. Nobody's when empty.
   */
  readonly allowedOrigins?: string;

  /**
   * How many requests a second the HTTP API takes; more are answered 429 before they cost anything. Default: 1000.
   */
  readonly throttlingRate?: number;

  /**
   * How many requests it takes at once. Default: 2000.
   */
  readonly throttlingBurst?: number;

  /**
   * How many requests a minute are taken of one API key or subject of an issuer; any number when 0. Default: 0.
   */
  readonly rateKey?: number;

  /**
   * How many requests a minute are taken of all keys of a tenant together; any number when 0. Default: 0.
   */
  readonly rateTenant?: number;

  /**
   * For how many days it is kept who did what; not at all when 0. Default: 0.
   */
  readonly auditDays?: number;

  /**
   * The issuers whose tokens are taken beside API keys, as a JSON array. None when empty.
   */
  readonly issuers?: string;

  /**
   * The name under which the HTTP API is reached, like agents.example.com. Addresses that are given out begin with
   * it. The name that AWS gives to the API is used when empty.
   */
  readonly domainName?: string;

  /**
   * The certificate for that name, of ACM in this region.
   */
  readonly certificateArn?: string;

  /**
   * The zone of Route 53 in which the name is entered. Nowhere when empty; the outputs tell what to enter.
   */
  readonly hostedZoneId?: string;

  /**
   * What addresses that are given out begin with, if neither with that name nor with that of the API. For a proxy
   * in front of it.
   */
  readonly baseUrl?: string;

  /**
   * Whether there is the function that streams events as they come. It needs function addresses, which not every
   * region has; without it streams are asked for again and again, through the API. Default: "enabled".
   */
  readonly streaming?: "enabled" | "disabled";

  /**
   * Whether there is a WebSocket API, with the function that holds its sockets. It needs socket.zip beside the
   * others. Default: "disabled".
   */
  readonly sockets?: "enabled" | "disabled";

  /**
   * Whether sessions may have webhooks, to which their events are sent. The function wakeup, which sends them,
   * reads the callback secret then and reaches addresses on the public internet that clients name. Default:
   * "disabled".
   */
  readonly webhooks?: "enabled" | "disabled";

  /**
   * How long a turn may compute at most, if no HTTP request waits for it; those have 25 seconds. What a dead
   * worker had claimed is free again after as long. Beyond 170 the third delivery of an event comes too early for
   * it. Default: 150.
   */
  readonly turnSeconds?: number;

  /**
   * How many seconds the function signal may run. More than TurnSeconds. Default: 180.
   */
  readonly signalTimeout?: number;

  /**
   * How many seconds the function wakeup may run. More than TurnSeconds. Default: 300.
   */
  readonly wakeupTimeout?: number;

  /**
   * How many requests inbound serves at a time at most; 0 for as many as the account lets it. A limit keeps room
   * in the account for callbacks and wake-ups, which are other functions. Default: 0.
   */
  readonly inboundConcurrency?: number;

  /**
   * How many streams are open at a time at most, in all processes together; 0 for as many as the account lets it.
   * Each open stream takes one of the account's. Default: 0.
   */
  readonly streamConcurrency?: number;

  /**
   * How many streams a tenant may have open at a time, in all processes together; not counted when 0. Default: 0.
   */
  readonly streamsOfTenant?: number;

  /**
   * Whether keys of tenants may send signals by name. Each wait of what a tenant began is one item more then,
   * which costs four write units. Default: "disabled".
   */
  readonly signalsOfTenants?: "enabled" | "disabled";

  /**
   * How many calls of the function for sockets run at a time at most; 0 for as many as the account lets it. Each
   * socket that is followed takes one of the account's, and one that rests none. Default: 0.
   */
  readonly socketConcurrency?: number;

  /**
   * How many frames a second the WebSocket API takes of all clients together; each may be twice as many at once.
   * Default: 500.
   */
  readonly socketThrottlingRate?: number;

  /**
   * How many callbacks, signals and events are served at a time at most. So many are kept free for them in the
   * account, whatever else runs there. 0 for neither. Default: 0.
   */
  readonly signalConcurrency?: number;

  /**
   * The same for wake-ups and work that was accepted. Default: 0.
   */
  readonly wakeupConcurrency?: number;

  /**
   * The same for sweeps, of which one begins each minute; 2 are enough. They have a function of their own, so that
   * no work that takes long keeps them from it. Default: 0.
   */
  readonly sweepConcurrency?: number;

  /**
   * A table that is there already, for example restored from a backup, to be used instead of the one that the
   * stack makes. It keeps its own capacity, key and tags; time to live, recovery and protection it has to have
   * before. The one that the stack made until then stays, without the stack. When empty again, the stack makes a
   * new table with nothing in it.
   */
  readonly tableArn?: string;

  /**
   * Read units a second that the table is provisioned with, 25 at least; 0 pays for each request. Default: 0.
   */
  readonly readCapacity?: number;

  /**
   * The same for write units; both or neither. Default: 0.
   */
  readonly writeCapacity?: number;

  /**
   * Up to how many read units a provisioned table grows by itself; 0 for not at all. Default: 0.
   */
  readonly readCapacityMost?: number;

  /**
   * The same for write units; both or neither. Default: 0.
   */
  readonly writeCapacityMost?: number;

  /**
   * Read units a second that the table is made ready for before anybody asks; 0 for what AWS gives to all, else
   * 12000 at least. It costs once, and can only be raised. Default: 0.
   */
  readonly warmReads?: number;

  /**
   * The same for write units, 4000 at least; both or neither. Default: 0.
   */
  readonly warmWrites?: number;

  /**
   * How a new version of a function takes over. AtOnce does without CodeDeploy. In steps the new version has a
   * part of the calls first, and alarms for its errors take the old version back for as long as it has not all of
   * them; LambdaAllAtOnce leaves no time for that. Default: "AtOnce".
   */
  readonly rollout?: "AtOnce" | "LambdaAllAtOnce" | "LambdaCanary10Percent5Minutes" | "LambdaCanary10Percent10Minutes" | "LambdaCanary10Percent15Minutes" | "LambdaCanary10Percent30Minutes" | "LambdaLinear10PercentEvery1Minute" | "LambdaLinear10PercentEvery2Minutes" | "LambdaLinear10PercentEvery3Minutes" | "LambdaLinear10PercentEvery10Minutes";

  /**
   * Names of published workspaces whose agents the functions serve, separated by commas. With a name there is a
   * bucket for their bundles, which stays when none is named any more.
   */
  readonly workspaces?: string;

  /**
   * A bucket of workspaces that is there already, like one that a stack made before, to be used instead of the one
   * that the stack makes. It keeps its own encryption, versions and rules. The one that the stack made until then
   * stays, without it.
   */
  readonly workspaceBucketName?: string;

  /**
   * ARNs of the models of Amazon Bedrock, and of the inference profiles, that agents of published workspaces may
   * ask, separated by commas. Without one they may ask none.
   */
  readonly bedrockModels?: string;

  /**
   * Whether agents of published workspaces have native tools and actions. They work in a function of their own,
   * which needs tools.zip beside the others. Default: "disabled".
   */
  readonly tools?: "enabled" | "disabled";

  /**
   * How many of their calls are served at a time at most, each by a process of its own; 0 for as many as the
   * account lets it. Default: 0.
   */
  readonly toolsConcurrency?: number;

  /**
   * How many seconds a call of theirs may take; a command has ten less. Default: 180.
   */
  readonly toolsTimeout?: number;

  /**
   * For how many days the bucket of workspaces keeps what was replaced, like the files of a workspace before a
   * tool changed one, which is all of them each time; 0 for ever. What sleeps needs nothing of it. Default: 90.
   */
  readonly versionDays?: number;

  /**
   * How long logs are kept. Default: 30.
   */
  readonly logRetentionDays?: 1 | 3 | 7 | 14 | 30 | 60 | 90 | 180 | 365;

  /**
   * Who is told of alarms by e-mail, after they have confirmed the subscription that Amazon SNS asks them for.
   * Nobody when empty.
   */
  readonly alarmEmail?: string;

  /**
   * A topic of Amazon SNS that is told of alarms, instead of an e-mail or beside it. Its policy has to let
   * cloudwatch.amazonaws.com publish.
   */
  readonly alarmTopicArn?: string;

  /**
   * Each alarm costs ten cents a month beyond the account's ten. With few there are only those that tell of lost
   * work and of failing functions. Default: "all".
   */
  readonly alarms?: "all" | "few";

  /**
   * At how many calls of the functions inbound, signal, wakeup, stream and socket in an hour there is an alarm,
   * because somebody has to pay for them; none when 0. Default: 0.
   */
  readonly invocationsAlarmAt?: number;

  /**
   * Whether X-Ray traces calls, one a second of each function and a twentieth of the others, which costs five
   * dollars for a million traces. Default: "enabled".
   */
  readonly tracing?: "enabled" | "disabled";

  /**
   * At how much of the account's concurrency there is an alarm. What is reserved counts as in use, because no
   * other function may have it. Default: 800.
   */
  readonly concurrencyAlarmAt?: number;
}

/** The template's names for them. */
export const PARAMETERS: { readonly [name in keyof Required<DormouseParameters>]: string } = {
  stage: "Stage",
  architecture: "Architecture",
  secretsChanged: "SecretsChanged",
  secretStore: "SecretStore",
  receipts: "Receipts",
  receiptsKmsKeyArn: "ReceiptsKmsKeyArn",
  notifications: "Notifications",
  emailIdentityArn: "EmailIdentityArn",
  kmsKeyArn: "KmsKeyArn",
  earlierKmsKeyArns: "EarlierKmsKeyArns",
  inboundAuthorization: "InboundAuthorization",
  allowedOrigins: "AllowedOrigins",
  throttlingRate: "ThrottlingRate",
  throttlingBurst: "ThrottlingBurst",
  rateKey: "RateKey",
  rateTenant: "RateTenant",
  auditDays: "AuditDays",
  issuers: "Issuers",
  domainName: "DomainName",
  certificateArn: "CertificateArn",
  hostedZoneId: "HostedZoneId",
  baseUrl: "BaseUrl",
  streaming: "Streaming",
  sockets: "Sockets",
  webhooks: "Webhooks",
  turnSeconds: "TurnSeconds",
  signalTimeout: "SignalTimeout",
  wakeupTimeout: "WakeupTimeout",
  inboundConcurrency: "InboundConcurrency",
  streamConcurrency: "StreamConcurrency",
  streamsOfTenant: "StreamsOfTenant",
  signalsOfTenants: "SignalsOfTenants",
  socketConcurrency: "SocketConcurrency",
  socketThrottlingRate: "SocketThrottlingRate",
  signalConcurrency: "SignalConcurrency",
  wakeupConcurrency: "WakeupConcurrency",
  sweepConcurrency: "SweepConcurrency",
  tableArn: "TableArn",
  readCapacity: "ReadCapacity",
  writeCapacity: "WriteCapacity",
  readCapacityMost: "ReadCapacityMost",
  writeCapacityMost: "WriteCapacityMost",
  warmReads: "WarmReads",
  warmWrites: "WarmWrites",
  rollout: "Rollout",
  workspaces: "Workspaces",
  workspaceBucketName: "WorkspaceBucketName",
  bedrockModels: "BedrockModels",
  tools: "Tools",
  toolsConcurrency: "ToolsConcurrency",
  toolsTimeout: "ToolsTimeout",
  versionDays: "VersionDays",
  logRetentionDays: "LogRetentionDays",
  alarmEmail: "AlarmEmail",
  alarmTopicArn: "AlarmTopicArn",
  alarms: "Alarms",
  invocationsAlarmAt: "InvocationsAlarmAt",
  tracing: "Tracing",
  concurrencyAlarmAt: "ConcurrencyAlarmAt",
};

/** The template's names for its outputs. */
export const OUTPUTS = {
  url: "Url",
  apiEndpoint: "ApiEndpoint",
  domainTarget: "DomainTarget",
  streamUrl: "StreamUrl",
  socketUrl: "SocketUrl",
  busName: "BusName",
  tableName: "TableName",
  workspaceBucket: "WorkspaceBucket",
  failedQueueUrl: "FailedQueueUrl",
  undeliveredQueueUrl: "UndeliveredQueueUrl",
} as const;
