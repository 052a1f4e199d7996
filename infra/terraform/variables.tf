# Made of template.yaml by publish.py; change that.

variable "stage" {
  description = "Which copy of Dormouse this is. Its secrets are parameters below /dormouse/STAGE; all else is named after the stack. The template's default: \"dev\"."
  type        = string
  default     = null

  validation {
    condition     = var.stage == null ? true : can(regex("^[a-z][a-z0-9-]{0,19}$", var.stage))
    error_message = "It has to match [a-z][a-z0-9-]{0,19}"
  }
}

variable "architecture" {
  description = "What the functions are built for. The template's default: \"arm64\"."
  type        = string
  default     = null

  validation {
    condition     = var.architecture == null ? true : contains(["arm64", "x86_64"], var.architecture)
    error_message = "One of: arm64, x86_64."
  }
}

variable "secrets_changed" {
  description = "When the secrets were changed, as the deployment found them. Another text begins new processes, which read them anew."
  type        = string
  default     = null
}

variable "secret_store" {
  description = "Where the secrets are; encrypted parameters below /dormouse/STAGE, or secrets of Secrets Manager below dormouse/STAGE, which Parameter Store hands through. With stack it is the latter, and the stack makes them up. The template's default: \"parameter-store\"."
  type        = string
  default     = null

  validation {
    condition     = var.secret_store == null ? true : contains(["parameter-store", "secrets-manager", "stack"], var.secret_store)
    error_message = "One of: parameter-store, secrets-manager, stack."
  }
}

variable "receipts" {
  description = "Whether ends of tasks and approvals leave signed receipts. The keys are the secret receipt-keys beside the others, which has to be there before. The template's default: \"disabled\"."
  type        = string
  default     = null

  validation {
    condition     = var.receipts == null ? true : contains(["enabled", "disabled"], var.receipts)
    error_message = "One of: enabled, disabled."
  }
}

variable "receipts_kms_key_arn" {
  description = "The key of AWS KMS that signs the receipts, of the key spec ECC_NIST_EDWARDS25519. The secret receipt-keys names it then, and has its public half. A key in that secret signs when empty."
  type        = string
  default     = null

  validation {
    condition     = var.receipts_kms_key_arn == null ? true : can(regex("^(arn:.+:kms:.+:key/.+)?$", var.receipts_kms_key_arn))
    error_message = "It has to match (arn:.+:kms:.+:key/.+)?"
  }
}

variable "notifications" {
  description = "Whether people hear that they are asked. The channels are the secret notifications beside the others, which has to be there before. The template's default: \"disabled\"."
  type        = string
  default     = null

  validation {
    condition     = var.notifications == null ? true : contains(["enabled", "disabled"], var.notifications)
    error_message = "One of: enabled, disabled."
  }
}

variable "email_identity_arn" {
  description = "The identity of Amazon SES that notifications by e-mail are sent from. Without it none is."
  type        = string
  default     = null

  validation {
    condition     = var.email_identity_arn == null ? true : can(regex("^(arn:.+:ses:.+:identity/.+)?$", var.email_identity_arn))
    error_message = "It has to match (arn:.+:ses:.+:identity/.+)?"
  }
}

variable "kms_key_arn" {
  description = "The key of your own that encrypts table, queues, logs, alarms, environments and secrets; keys that AWS manages when empty. What it was before belongs into EarlierKmsKeyArns."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key_arn == null ? true : can(regex("^(arn:.+:kms:.+:key/.+)?$", var.kms_key_arn))
    error_message = "It has to match (arn:.+:kms:.+:key/.+)?"
  }
}

variable "earlier_kms_key_arns" {
  description = "Keys that were KmsKeyArn before, separated by commas. Secrets, objects and queued events that were encrypted with them stay readable for the functions."
  type        = string
  default     = null

  validation {
    condition     = var.earlier_kms_key_arns == null ? true : can(regex("^(arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]+:key/[A-Za-z0-9-]+(,arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]+:key/[A-Za-z0-9-]+)*)?$", var.earlier_kms_key_arns))
    error_message = "It has to match (arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]+:key/[A-Za-z0-9-]+(,arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]+:key/[A-Za-z0-9-]+)*)?"
  }
}

variable "inbound_authorization" {
  description = "Who may begin turns and send messages. KEYS asks for an API key, AWS_IAM for a signed request; NONE lets everybody in. The template's default: \"KEYS\"."
  type        = string
  default     = null

  validation {
    condition     = var.inbound_authorization == null ? true : contains(["KEYS", "AWS_IAM", "NONE"], var.inbound_authorization)
    error_message = "One of: KEYS, AWS_IAM, NONE."
  }
}

variable "allowed_origins" {
  description = "Whose pages may ask /v1 from a browser, separated by commas. Nobody's when empty."
  type        = string
  default     = null

  validation {
    condition     = var.allowed_origins == null ? true : can(regex("^(( *((https?|HTTPS?)://[A-Za-z0-9._:\\[\\]-]+|\\*) *(, *((https?|HTTPS?)://[A-Za-z0-9._:\\[\\]-]+|\\*) *)*)?)$", var.allowed_origins))
    error_message = "It has to be origins like https://app.example.com, without a path or a slash at their ends, separated by commas."
  }
}

variable "throttling_rate" {
  description = "How many requests a second the HTTP API takes; more are answered 429 before they cost anything. The template's default: 1000."
  type        = number
  default     = null

  validation {
    condition     = var.throttling_rate == null ? true : var.throttling_rate >= 1
    error_message = "At least 1."
  }
}

variable "throttling_burst" {
  description = "How many requests it takes at once. The template's default: 2000."
  type        = number
  default     = null

  validation {
    condition     = var.throttling_burst == null ? true : var.throttling_burst >= 1
    error_message = "At least 1."
  }
}

variable "rate_key" {
  description = "How many requests a minute are taken of one API key or subject of an issuer; any number when 0. The template's default: 0."
  type        = number
  default     = null

  validation {
    condition     = var.rate_key == null ? true : var.rate_key >= 0 && var.rate_key <= 1000000
    error_message = "At least 0. At most 1000000."
  }
}

variable "rate_tenant" {
  description = "How many requests a minute are taken of all keys of a tenant together; any number when 0. The template's default: 0."
  type        = number
  default     = null

  validation {
    condition     = var.rate_tenant == null ? true : var.rate_tenant >= 0 && var.rate_tenant <= 1000000
    error_message = "At least 0. At most 1000000."
  }
}

variable "audit_days" {
  description = "For how many days it is kept who did what; not at all when 0. The template's default: 0."
  type        = number
  default     = null

  validation {
    condition     = var.audit_days == null ? true : var.audit_days >= 0 && var.audit_days <= 3660
    error_message = "At least 0. At most 3660."
  }
}

variable "issuers" {
  description = "The issuers whose tokens are taken beside API keys, as a JSON array. None when empty."
  type        = string
  default     = null

  validation {
    condition     = var.issuers == null ? true : can(regex("^(\\s*\\[[\\s\\S]*\\]\\s*)?$", var.issuers))
    error_message = "It has to be a JSON array of issuers."
  }
}

variable "domain_name" {
  description = "The name under which the HTTP API is reached, like agents.example.com. Addresses that are given out begin with it. The name that AWS gives to the API is used when empty."
  type        = string
  default     = null
}

variable "certificate_arn" {
  description = "The certificate for that name, of ACM in this region."
  type        = string
  default     = null
}

variable "hosted_zone_id" {
  description = "The zone of Route 53 in which the name is entered. Nowhere when empty; the outputs tell what to enter."
  type        = string
  default     = null
}

variable "base_url" {
  description = "What addresses that are given out begin with, if neither with that name nor with that of the API. For a proxy in front of it."
  type        = string
  default     = null

  validation {
    condition     = var.base_url == null ? true : can(regex("^(https://.+)?$", var.base_url))
    error_message = "It has to match (https://.+)?"
  }
}

variable "streaming" {
  description = "Whether there is the function that streams events as they come. It needs function addresses, which not every region has; without it streams are asked for again and again, through the API. The template's default: \"enabled\"."
  type        = string
  default     = null

  validation {
    condition     = var.streaming == null ? true : contains(["enabled", "disabled"], var.streaming)
    error_message = "One of: enabled, disabled."
  }
}

variable "sockets" {
  description = "Whether there is a WebSocket API, with the function that holds its sockets. It needs socket.zip beside the others. The template's default: \"disabled\"."
  type        = string
  default     = null

  validation {
    condition     = var.sockets == null ? true : contains(["enabled", "disabled"], var.sockets)
    error_message = "One of: enabled, disabled."
  }
}

variable "webhooks" {
  description = "Whether sessions may have webhooks, to which their events are sent. The function wakeup, which sends them, reads the callback secret then and reaches addresses on the public internet that clients name. The template's default: \"disabled\"."
  type        = string
  default     = null

  validation {
    condition     = var.webhooks == null ? true : contains(["enabled", "disabled"], var.webhooks)
    error_message = "One of: enabled, disabled."
  }
}

variable "turn_seconds" {
  description = "How long a turn may compute at most, if no HTTP request waits for it; those have 25 seconds. What a dead worker had claimed is free again after as long. Beyond 170 the third delivery of an event comes too early for it. The template's default: 150."
  type        = number
  default     = null

  validation {
    condition     = var.turn_seconds == null ? true : var.turn_seconds >= 5 && var.turn_seconds <= 870
    error_message = "At least 5. At most 870."
  }
}

variable "signal_timeout" {
  description = "How many seconds the function signal may run. More than TurnSeconds. The template's default: 180."
  type        = number
  default     = null

  validation {
    condition     = var.signal_timeout == null ? true : var.signal_timeout >= 29 && var.signal_timeout <= 900
    error_message = "At least 29. At most 900."
  }
}

variable "wakeup_timeout" {
  description = "How many seconds the function wakeup may run. More than TurnSeconds. The template's default: 300."
  type        = number
  default     = null

  validation {
    condition     = var.wakeup_timeout == null ? true : var.wakeup_timeout >= 60 && var.wakeup_timeout <= 900
    error_message = "At least 60. At most 900."
  }
}

variable "inbound_concurrency" {
  description = "How many requests inbound serves at a time at most; 0 for as many as the account lets it. A limit keeps room in the account for callbacks and wake-ups, which are other functions. The template's default: 0."
  type        = number
  default     = null

  validation {
    condition     = var.inbound_concurrency == null ? true : var.inbound_concurrency >= 0
    error_message = "At least 0."
  }
}

variable "stream_concurrency" {
  description = "How many streams are open at a time at most, in all processes together; 0 for as many as the account lets it. Each open stream takes one of the account's. The template's default: 0."
  type        = number
  default     = null

  validation {
    condition     = var.stream_concurrency == null ? true : var.stream_concurrency >= 0
    error_message = "At least 0."
  }
}

variable "streams_of_tenant" {
  description = "How many streams a tenant may have open at a time, in all processes together; not counted when 0. The template's default: 0."
  type        = number
  default     = null

  validation {
    condition     = var.streams_of_tenant == null ? true : var.streams_of_tenant >= 0 && var.streams_of_tenant <= 10000
    error_message = "At least 0. At most 10000."
  }
}

variable "signals_of_tenants" {
  description = "Whether keys of tenants may send signals by name. Each wait of what a tenant began is one item more then, which costs four write units. The template's default: \"disabled\"."
  type        = string
  default     = null

  validation {
    condition     = var.signals_of_tenants == null ? true : contains(["enabled", "disabled"], var.signals_of_tenants)
    error_message = "One of: enabled, disabled."
  }
}

variable "socket_concurrency" {
  description = "How many calls of the function for sockets run at a time at most; 0 for as many as the account lets it. Each socket that is followed takes one of the account's, and one that rests none. The template's default: 0."
  type        = number
  default     = null

  validation {
    condition     = var.socket_concurrency == null ? true : var.socket_concurrency >= 0
    error_message = "At least 0."
  }
}

variable "socket_throttling_rate" {
  description = "How many frames a second the WebSocket API takes of all clients together; each may be twice as many at once. The template's default: 500."
  type        = number
  default     = null

  validation {
    condition     = var.socket_throttling_rate == null ? true : var.socket_throttling_rate >= 1
    error_message = "At least 1."
  }
}

variable "signal_concurrency" {
  description = "How many callbacks, signals and events are served at a time at most. So many are kept free for them in the account, whatever else runs there. 0 for neither. The template's default: 0."
  type        = number
  default     = null

  validation {
    condition     = var.signal_concurrency == null ? true : var.signal_concurrency >= 0
    error_message = "At least 0."
  }
}

variable "wakeup_concurrency" {
  description = "The same for wake-ups and work that was accepted. The template's default: 0."
  type        = number
  default     = null

  validation {
    condition     = var.wakeup_concurrency == null ? true : var.wakeup_concurrency >= 0
    error_message = "At least 0."
  }
}

variable "sweep_concurrency" {
  description = "The same for sweeps, of which one begins each minute; 2 are enough. They have a function of their own, so that no work that takes long keeps them from it. The template's default: 0."
  type        = number
  default     = null

  validation {
    condition     = var.sweep_concurrency == null ? true : var.sweep_concurrency >= 0
    error_message = "At least 0."
  }
}

variable "table_arn" {
  description = "A table that is there already, for example restored from a backup, to be used instead of the one that the stack makes. It keeps its own capacity, key and tags; time to live, recovery and protection it has to have before. The one that the stack made until then stays, without the stack. When empty again, the stack makes a new table with nothing in it."
  type        = string
  default     = null

  validation {
    condition     = var.table_arn == null ? true : can(regex("^(arn:.+:dynamodb:.+:table/.+)?$", var.table_arn))
    error_message = "It has to match (arn:.+:dynamodb:.+:table/.+)?"
  }
}

variable "read_capacity" {
  description = "Read units a second that the table is provisioned with, 25 at least; 0 pays for each request. The template's default: 0."
  type        = number
  default     = null

  validation {
    condition     = var.read_capacity == null ? true : var.read_capacity >= 0
    error_message = "At least 0."
  }
}

variable "write_capacity" {
  description = "The same for write units; both or neither. The template's default: 0."
  type        = number
  default     = null

  validation {
    condition     = var.write_capacity == null ? true : var.write_capacity >= 0
    error_message = "At least 0."
  }
}

variable "read_capacity_most" {
  description = "Up to how many read units a provisioned table grows by itself; 0 for not at all. The template's default: 0."
  type        = number
  default     = null

  validation {
    condition     = var.read_capacity_most == null ? true : var.read_capacity_most >= 0
    error_message = "At least 0."
  }
}

variable "write_capacity_most" {
  description = "The same for write units; both or neither. The template's default: 0."
  type        = number
  default     = null

  validation {
    condition     = var.write_capacity_most == null ? true : var.write_capacity_most >= 0
    error_message = "At least 0."
  }
}

variable "warm_reads" {
  description = "Read units a second that the table is made ready for before anybody asks; 0 for what AWS gives to all, else 12000 at least. It costs once, and can only be raised. The template's default: 0."
  type        = number
  default     = null

  validation {
    condition     = var.warm_reads == null ? true : var.warm_reads >= 0
    error_message = "At least 0."
  }
}

variable "warm_writes" {
  description = "The same for write units, 4000 at least; both or neither. The template's default: 0."
  type        = number
  default     = null

  validation {
    condition     = var.warm_writes == null ? true : var.warm_writes >= 0
    error_message = "At least 0."
  }
}

variable "rollout" {
  description = "How a new version of a function takes over. AtOnce does without CodeDeploy. In steps the new version has a part of the calls first, and alarms for its errors take the old version back for as long as it has not all of them; LambdaAllAtOnce leaves no time for that. The template's default: \"AtOnce\"."
  type        = string
  default     = null

  validation {
    condition     = var.rollout == null ? true : contains(["AtOnce", "LambdaAllAtOnce", "LambdaCanary10Percent5Minutes", "LambdaCanary10Percent10Minutes", "LambdaCanary10Percent15Minutes", "LambdaCanary10Percent30Minutes", "LambdaLinear10PercentEvery1Minute", "LambdaLinear10PercentEvery2Minutes", "LambdaLinear10PercentEvery3Minutes", "LambdaLinear10PercentEvery10Minutes"], var.rollout)
    error_message = "One of: AtOnce, LambdaAllAtOnce, LambdaCanary10Percent5Minutes, LambdaCanary10Percent10Minutes, LambdaCanary10Percent15Minutes, LambdaCanary10Percent30Minutes, LambdaLinear10PercentEvery1Minute, LambdaLinear10PercentEvery2Minutes, LambdaLinear10PercentEvery3Minutes, LambdaLinear10PercentEvery10Minutes."
  }
}

variable "workspaces" {
  description = "Names of published workspaces whose agents the functions serve, separated by commas. With a name there is a bucket for their bundles, which stays when none is named any more."
  type        = string
  default     = null

  validation {
    condition     = var.workspaces == null ? true : can(regex("^([a-z][a-z0-9-]{0,63}(,[a-z][a-z0-9-]{0,63})*)?$", var.workspaces))
    error_message = "It has to match ([a-z][a-z0-9-]{0,63}(,[a-z][a-z0-9-]{0,63})*)?"
  }
}

variable "workspace_bucket_name" {
  description = "A bucket of workspaces that is there already, like one that a stack made before, to be used instead of the one that the stack makes. It keeps its own encryption, versions and rules. The one that the stack made until then stays, without it."
  type        = string
  default     = null

  validation {
    condition     = var.workspace_bucket_name == null ? true : can(regex("^([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])?$", var.workspace_bucket_name))
    error_message = "It has to match ([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])?"
  }
}

variable "bedrock_models" {
  description = "ARNs of the models of Amazon Bedrock, and of the inference profiles, that agents of published workspaces may ask, separated by commas. Without one they may ask none."
  type        = string
  default     = null

  validation {
    condition     = var.bedrock_models == null ? true : can(regex("^(arn:[a-z-]+:bedrock:[a-z0-9-]*:[0-9]*:[a-z-]+/[A-Za-z0-9._:-]+(,arn:[a-z-]+:bedrock:[a-z0-9-]*:[0-9]*:[a-z-]+/[A-Za-z0-9._:-]+)*)?$", var.bedrock_models))
    error_message = "It has to match (arn:[a-z-]+:bedrock:[a-z0-9-]*:[0-9]*:[a-z-]+/[A-Za-z0-9._:-]+(,arn:[a-z-]+:bedrock:[a-z0-9-]*:[0-9]*:[a-z-]+/[A-Za-z0-9._:-]+)*)?"
  }
}

variable "tools" {
  description = "Whether agents of published workspaces have native tools and actions. They work in a function of their own, which needs tools.zip beside the others. The template's default: \"disabled\"."
  type        = string
  default     = null

  validation {
    condition     = var.tools == null ? true : contains(["enabled", "disabled"], var.tools)
    error_message = "One of: enabled, disabled."
  }
}

variable "tools_concurrency" {
  description = "How many of their calls are served at a time at most, each by a process of its own; 0 for as many as the account lets it. The template's default: 0."
  type        = number
  default     = null

  validation {
    condition     = var.tools_concurrency == null ? true : var.tools_concurrency >= 0
    error_message = "At least 0."
  }
}

variable "tools_timeout" {
  description = "How many seconds a call of theirs may take; a command has ten less. The template's default: 180."
  type        = number
  default     = null

  validation {
    condition     = var.tools_timeout == null ? true : var.tools_timeout >= 30 && var.tools_timeout <= 900
    error_message = "At least 30. At most 900."
  }
}

variable "version_days" {
  description = "For how many days the bucket of workspaces keeps what was replaced, like the files of a workspace before a tool changed one, which is all of them each time; 0 for ever. What sleeps needs nothing of it. The template's default: 90."
  type        = number
  default     = null

  validation {
    condition     = var.version_days == null ? true : var.version_days >= 0 && var.version_days <= 3650
    error_message = "At least 0. At most 3650."
  }
}

variable "log_retention_days" {
  description = "How long logs are kept. The template's default: 30."
  type        = number
  default     = null

  validation {
    condition     = var.log_retention_days == null ? true : contains([1, 3, 7, 14, 30, 60, 90, 180, 365], var.log_retention_days)
    error_message = "One of: 1, 3, 7, 14, 30, 60, 90, 180, 365."
  }
}

variable "alarm_email" {
  description = "Who is told of alarms by e-mail, after they have confirmed the subscription that Amazon SNS asks them for. Nobody when empty."
  type        = string
  default     = null
}

variable "alarm_topic_arn" {
  description = "A topic of Amazon SNS that is told of alarms, instead of an e-mail or beside it. Its policy has to let cloudwatch.amazonaws.com publish."
  type        = string
  default     = null

  validation {
    condition     = var.alarm_topic_arn == null ? true : can(regex("^(arn:.+:sns:.+)?$", var.alarm_topic_arn))
    error_message = "It has to match (arn:.+:sns:.+)?"
  }
}

variable "alarms" {
  description = "Each alarm costs ten cents a month beyond the account's ten. With few there are only those that tell of lost work and of failing functions. The template's default: \"all\"."
  type        = string
  default     = null

  validation {
    condition     = var.alarms == null ? true : contains(["all", "few"], var.alarms)
    error_message = "One of: all, few."
  }
}

variable "invocations_alarm_at" {
  description = "At how many calls of the functions inbound, signal, wakeup, stream and socket in an hour there is an alarm, because somebody has to pay for them; none when 0. The template's default: 0."
  type        = number
  default     = null

  validation {
    condition     = var.invocations_alarm_at == null ? true : var.invocations_alarm_at >= 0
    error_message = "At least 0."
  }
}

variable "tracing" {
  description = "Whether X-Ray traces calls, one a second of each function and a twentieth of the others, which costs five dollars for a million traces. The template's default: \"enabled\"."
  type        = string
  default     = null

  validation {
    condition     = var.tracing == null ? true : contains(["enabled", "disabled"], var.tracing)
    error_message = "One of: enabled, disabled."
  }
}

variable "concurrency_alarm_at" {
  description = "At how much of the account's concurrency there is an alarm. What is reserved counts as in use, because no other function may have it. The template's default: 800."
  type        = number
  default     = null

  validation {
    condition     = var.concurrency_alarm_at == null ? true : var.concurrency_alarm_at >= 1
    error_message = "At least 1."
  }
}
